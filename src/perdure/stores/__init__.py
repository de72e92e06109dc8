"""The stores: one module per capability, each written once over the kernel and so present on every engine."""
