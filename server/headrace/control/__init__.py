"""Loading, reloading and unloading models while the server serves; may see all."""
