"""What tests share: programs, cases, and ways to run them."""
