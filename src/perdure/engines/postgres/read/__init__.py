"""The PostgreSQL read path: any number of reads as one statement."""
