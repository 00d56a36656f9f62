"""The loop intermediate representation and its printer."""
