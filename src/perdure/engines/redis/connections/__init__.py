"""Redis connections: login, TLS, pools, routing, and the protocol on the wire."""
