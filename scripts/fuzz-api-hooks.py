"""Bodies of the API that Schemathesis does not know: bundles and backups are opaque bytes."""

import schemathesis


@schemathesis.serializer("application/zstd")
def as_bytes(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.deserializer("application/zstd")
def opaque(ctx, response):
    return response.content.decode("latin-1")
