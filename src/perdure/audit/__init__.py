"""The auditor: reads a whole store and reports what is damaged or contradicts itself."""
