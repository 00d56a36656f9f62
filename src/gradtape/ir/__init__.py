"""The intermediate representation: types, graph, builder, printer, verifier, fingerprint."""
