"""What every engine shares: lifecycle, hints, URL options, the schema record and its migrations."""
