"""Decodes a trace with Perfetto's own messages (PyPI package `perfetto`) and checks what a viewer
needs. Prints what it found as JSON; exit code 3: the messages are not installed."""

import json
import sys
from collections import defaultdict

try:
    from google.protobuf.unknown_fields import UnknownFieldSet
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(3)

EVENT = protos.TrackEvent


def known(message, path):
    """No field that the official messages do not have, at any depth."""
    unknown = [field.field_number for field in UnknownFieldSet(message)]
    assert not unknown, f"{path}: unknown fields {unknown}"
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in value if isinstance(value, protos.Trace().packet.__class__) else [value]:
            known(one, f"{path}.{field.name}")


trace = protos.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
for packet in trace.packet:
    known(packet, "packet")

tracks = {}
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id == 1
    if packet.HasField("track_descriptor"):
        d = packet.track_descriptor
        assert d.uuid not in tracks, f"track {d.uuid} twice"
        assert not d.HasField("parent_uuid") or d.parent_uuid in tracks, "a parent comes first"
        tracks[d.uuid] = d
assert trace.packet[0].sequence_flags & protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
siblings = [(d.parent_uuid, d.name) for d in tracks.values() if d.name]
assert len(siblings) == len(set(siblings)), "a viewer merges tracks of one name"


def name(uuid):
    d = tracks[uuid]
    return d.name or d.thread.thread_name or d.process.process_name


last = 0
stacks, slices, flows = defaultdict(list), [], defaultdict(list)
instants, counted = 0, defaultdict(int)
for packet in trace.packet:
    if not packet.HasField("track_event"):
        continue
    e, at = packet.track_event, packet.timestamp
    assert at >= last, "time falls"
    last = at
    assert e.track_uuid in tracks, f"an event of no track: {e}"
    stack = stacks[e.track_uuid]
    if e.type == EVENT.TYPE_SLICE_BEGIN:
        assert e.name, "a slice without a name"
        stack.append({"name": e.name, "track": name(e.track_uuid), "from": at,
                      "depth": len(stack), "flows": []})
        slice = stack[-1]
        slices.append(slice)
    elif e.type == EVENT.TYPE_SLICE_END:
        assert stack, f"{name(e.track_uuid)}: an end without a begin at {at}"
        slice = stack.pop()
        slice["to"] = at
    elif e.type == EVENT.TYPE_COUNTER:
        assert tracks[e.track_uuid].HasField("counter"), f"{name(e.track_uuid)} counts nothing"
        assert e.counter_value >= 0 and not e.flow_ids
        counted[name(e.track_uuid)] += 1
        continue
    else:
        assert e.type == EVENT.TYPE_INSTANT and e.name
        assert not e.flow_ids
        instants += 1
        continue
    for flow in e.flow_ids:
        slice["flows"].append(flow)
        flows[flow].append(slice)
for uuid, stack in stacks.items():
    assert not stack, f"{name(uuid)}: {stack} do not end"
for flow, through in flows.items():
    assert len(through) > 1, f"flow {flow} has one end: {through}"

json.dump({
    "packets": len(trace.packet), "tracks": [name(u) for u in tracks], "instants": instants,
    "slices": slices, "counters": counted, "flows": {str(f): [(s["track"], s["name"]) for s in t] for f, t in flows.items()},
}, sys.stdout)
