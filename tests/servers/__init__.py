"""Real processes for tests: databases, servers of the whole application, Redis, a faulty network, writers.

    with create_installation(folder) as installation, installation.serving("daphne") as server:
        program = installation.program(server)
        ...

The vendors are played in the test's own process; the servers find them through PARLEY_PROVIDERS.
"""
