"""What the way through the data plane costs, beside a bare proxy and beside nginx on the same machine."""
