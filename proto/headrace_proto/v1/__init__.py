"""Version 1 of the contract: the .proto files and, beside them, the code generated from them."""
