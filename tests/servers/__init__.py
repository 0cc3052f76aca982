"""Real processes for tests: databases, servers of the whole application, Redis, a faulty network, writers.

    with house_in(folder) as house, house.serving("daphne") as server:
        program = house.program(server)
        ...

The vendors are played in the test's own process; the servers find them through PARLEY_PROVIDERS.
"""
