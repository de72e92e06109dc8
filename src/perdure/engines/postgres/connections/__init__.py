"""PostgreSQL connections: opening, login, pools and session settings."""
