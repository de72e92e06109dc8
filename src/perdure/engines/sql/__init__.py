"""What the SQL engines share: reading declarations as a relational database must. No SQL dialect lives here."""
