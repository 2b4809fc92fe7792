"""The same stories with what Kubernetes users have today and with ours, side by side: `make incumbents`."""
