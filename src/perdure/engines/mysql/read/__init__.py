"""The MySQL read path: statements of reads, and views answered from one snapshot."""
