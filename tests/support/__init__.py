"""What the tests share: servers, faults, and waiting for facts."""
