"""The server's core under load in virtual time: `python -m load.simulate`.

Everything from admission to the poller is the real code; device, clients and clock are not. A run
is decided by its seed alone, takes no longer than its Python, and says what a policy does without
what a machine does to it.
"""
