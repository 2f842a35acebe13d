"""Decodes an export of metrics with OpenTelemetry's published messages, and checks it against the conventions for generative AI.

The arguments are files with bodies of requests: protocol buffers if the name ends with .pb, or JSON. Prints the number of points.
"""

import pathlib
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

# The conventions' bounds, by name and unit.
BOUNDS = {
    ("gen_ai.server.request.duration", "s"): [0.01 * 2**nth for nth in range(14)],
    ("gen_ai.server.time_to_first_token", "s"): [
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    ],
    ("gen_ai.server.time_per_output_token", "s"): [
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    ],
    ("gen_ai.client.token.usage", "{token}"): [4.0**nth for nth in range(14)],
}
LABELS = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"}
OPTIONAL = {
    "gen_ai.server.request.duration": {"error.type"},
    "gen_ai.client.token.usage": {"gen_ai.token.type"},
}


def has_unknown_fields(message):
    """Returns true if a field of the message, at any depth, is not part of its definition."""
    again = type(message)()
    again.CopyFrom(message)
    again.DiscardUnknownFields()
    return again.SerializeToString(deterministic=True) != message.SerializeToString(deterministic=True)


def decode(path):
    body = pathlib.Path(path).read_bytes()
    request = ExportMetricsServiceRequest()
    if path.endswith(".pb"):
        assert request.ParseFromString(body) == len(body), path
        assert not has_unknown_fields(request), path
    else:
        # Refuses unknown fields.
        json_format.Parse(body, request)
    return request


def check(request):
    points, names = 0, set()
    for resource_metrics in request.resource_metrics:
        resource = {pair.key: pair.value for pair in resource_metrics.resource.attributes}
        assert {"service.name", "service.version", "service.instance.id"} <= resource.keys(), resource
        for scope_metrics in resource_metrics.scope_metrics:
            assert scope_metrics.schema_url.startswith("https://opentelemetry.io/schemas/"), scope_metrics
            for metric in scope_metrics.metrics:
                assert metric.WhichOneof("data") == "histogram", metric
                assert metric.histogram.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
                bounds = BOUNDS[metric.name, metric.unit]
                names.add(metric.name)
                for point in metric.histogram.data_points:
                    near = zip(point.explicit_bounds, bounds, strict=True)
                    assert all(abs(found - known) < 1e-9 for found, known in near), point
                    assert len(point.bucket_counts) == len(bounds) + 1, point
                    assert sum(point.bucket_counts) == point.count > 0, point
                    assert point.HasField("sum") and point.sum >= 0, point
                    assert 0 < point.start_time_unix_nano < point.time_unix_nano, point
                    labels = [pair.key for pair in point.attributes]
                    assert len(labels) == len(set(labels)), point
                    assert LABELS <= set(labels) <= LABELS | OPTIONAL.get(metric.name, set()), point
                    points += 1
    assert names == {name for name, _ in BOUNDS}, names
    return points


print(sum(check(decode(path)) for path in sys.argv[1:]), "points")
