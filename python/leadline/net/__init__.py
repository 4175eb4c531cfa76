"""Round trips, logins and fetches over the network: what `leadline net` measures. The sockets are in crates/net."""
