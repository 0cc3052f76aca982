"""The whole application in processes of its own, and those who talk to it over real sockets.

    with house_in(folder) as house, house.serving("daphne") as port:
        program = house.program(port)
        ...

The vendors are played in the test's own process; the servers find them through PARLEY_PROVIDERS.
"""

from tests.relay.served.house import House as House
from tests.relay.served.house import house_in as house_in
from tests.relay.served.page import Page as Page
from tests.relay.served.program import Program as Program
