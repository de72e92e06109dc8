"""The proof machinery: conformance cases over the public stores, and the providers that run them on an engine.

To run it on an engine of your own, write a provider (see `providers`) and call
`pytest --perdure-provider yourpackage.module:YourProvider --pyargs perdure.testkit.suite`.
"""
