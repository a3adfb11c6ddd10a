"""A program that goes through its memory again and again, and a service that wakes up now and then.

Recorded as service.refs by: outpage trace --once -o service.refs -- python3 service.py
"""

import threading

PAGE = 4096
STREAM = bytearray(48 << 20)
SERVICE = bytearray(4 << 20)
done = threading.Event()


def serve():
    """16 neighbouring pages every 100 ms, always the same."""
    while not done.wait(0.1):
        for at in range(0, 16 * PAGE, PAGE):
            SERVICE[at] = 1


service = threading.Thread(target=serve)
service.start()
for _ in range(8):
    for at in range(0, len(STREAM), PAGE):
        STREAM[at] = 1
done.set()
service.join()
