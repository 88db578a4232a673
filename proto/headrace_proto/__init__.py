"""The wire contract of headrace: messages, service table, wire scan and tensor codec."""
