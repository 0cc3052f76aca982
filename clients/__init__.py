"""The real command-line clients from npm against a played vendor on loopback, through Parley: `make clients`."""
