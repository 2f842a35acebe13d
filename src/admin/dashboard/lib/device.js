// Splits a device's memory into parts that add up to its size, in drawing order.
import { byName } from './live.js';

const number = replica => Number(String(replica).slice(1)) || 0;

/** `{kind, bytes}`; kind is replica, excess, settling, foreign, free or headroom. A replica has its model, state and measured bytes. */
export function parts(device) {
  if (device.parts) return device.parts;
  const owners = [...device.owners].sort((one, other) => number(one.replica) - number(other.replica));
  const held = owners.map(owner => ({ kind: 'replica', ...owner }));
  const rest = [['excess', device.excess_bytes], ['settling', device.settling_bytes], ['foreign', device.foreign_bytes]];
  const others = rest.filter(([, bytes]) => bytes > 0).map(([kind, bytes]) => ({ kind, bytes }));
  const given = [...held, ...others].reduce((sum, part) => sum + part.bytes, 0);
  const headroom = Math.min(device.headroom_bytes, Math.max(0, device.total_bytes - given));
  const free = Math.max(0, device.total_bytes - given - headroom);
  return [...held, ...others, ...(free ? [{ kind: 'free', bytes: free }] : []), ...(headroom ? [{ kind: 'headroom', bytes: headroom }] : [])];
}

export const PART_WORDS = {
  excess: ['Over the reservation', 'Replicas hold more than they reserved, as measured. It does not count as free.'],
  settling: ['Settling', 'A process has ended, and the device does not report its memory as free yet (M4).'],
  foreign: ['Foreign', 'Used by processes outside the pool. It never counts as free and is never evicted (M2).'],
  free: ['Free', 'The next load may take this.'],
  headroom: ['Headroom', 'Kept free as a safety margin.'],
};

export function replicaOf(part) {
  return byName.get(part.model)?.replicas.find(it => it.replica === part.replica) ?? null;
}

export const sum = (list, of) => list.reduce((total, it) => total + (of(it) || 0), 0);

/** Groups devices by node. */
export function nodes(devices) {
  const found = new Map();
  for (const device of devices) found.set(device.node, [...found.get(device.node) ?? [], device]);
  return [...found];
}

/**
 * The parts after a plan. What stays keeps its place; the new replica fills the room of its victims and what is free, from the left,
 * possibly in several pieces.
 */
function replaced(device, victims, added) {
  const next = [];
  let rest = added?.bytes ?? 0;
  for (const part of parts(device)) {
    if (!['free', 'settling'].includes(part.kind) && !victims.has(part.replica)) { next.push(part); continue; }
    const taken = Math.min(rest, part.bytes), free = part.bytes - taken, last = next.at(-1);
    rest -= taken;
    if (taken > 0 && last?.isNew) last.bytes += taken;
    else if (taken > 0) next.push({ kind: 'replica', ...added, bytes: taken });
    if (free > 0) next.push({ kind: 'free', bytes: free });
  }
  return next;
}

/** The devices after a plan: without its victims, and with its new replica. */
export function after(plan, devices) {
  const victims = new Set(plan.victims.map(it => it.replica));
  const placed = new Map(plan.placement.map(share => [share.device, share.bytes]));
  const touched = devices.filter(device => placed.has(device.device) || device.owners.some(owner => victims.has(owner.replica)));
  return touched.map(device => {
    const owners = device.owners.filter(owner => !victims.has(owner.replica));
    const bytes = placed.get(device.device), added = bytes && { replica: plan.wakes ?? 'new', model: plan.model, bytes, measured_bytes: null, state: 'planned', isNew: true };
    if (added) owners.push(added);
    const leaving = device.owners.filter(owner => victims.has(owner.replica));
    return { device, victims: new Set(leaving.map(it => it.replica)), next: { ...device, owners, reserved_bytes: sum(owners, it => it.bytes), settling_bytes: 0, parts: replaced(device, victims, added) } };
  });
}

/** Lays out a squarified treemap: each of `items` has a `size` and gets x, y, w, h in the unit of the rectangle. */
export function squarify(items, x, y, w, h) {
  const total = sum(items, it => it.size), out = [];
  if (!total || w <= 0 || h <= 0) return out;
  let rest = [...items].filter(it => it.size > 0).sort((one, other) => other.size - one.size);
  const scale = (w * h) / total;
  const worst = (row, side) => {
    const area = sum(row, it => it.size) * scale, sizes = row.map(it => it.size * scale);
    return Math.max((side * side * Math.max(...sizes)) / (area * area), (area * area) / (side * side * Math.min(...sizes)));
  };
  while (rest.length) {
    const side = Math.min(w, h);
    let taken = 1;
    while (taken < rest.length && worst(rest.slice(0, taken + 1), side) <= worst(rest.slice(0, taken), side)) taken += 1;
    const row = rest.slice(0, taken), thick = (sum(row, it => it.size) * scale) / side;
    let along = 0;
    for (const item of row) {
      const part = (item.size * scale) / thick;
      out.push(w >= h ? { item, x, y: y + along, w: thick, h: part } : { item, x: x + along, y, w: part, h: thick });
      along += part;
    }
    if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
    rest = rest.slice(taken);
  }
  return out;
}
