"""The demo's task family: small shell tasks, expert and sloppy demonstrations, and a tiny model that can learn them."""
