"""Rules of sizes and of ends: start, growth, servers, memory, kills, exits. Pure; shared by all programs."""
