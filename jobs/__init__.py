"""The ground floor: job states, scheduling, leases, reservations, events, audit and logs. Knows no other room."""
