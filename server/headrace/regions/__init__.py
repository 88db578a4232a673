"""Memory that clients of this machine share with the server, in regions that they register."""
