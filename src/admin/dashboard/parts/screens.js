// The screens: labels, icons, shortcuts, permitted roles, and groups.
const ALL = ['admin', 'viewer'], EVERYBODY = ['admin', 'viewer', 'user'];

export const SCREENS = {
  home: { word: 'Your models', icon: 'models', key: 'h', for: ['user'], group: '' },
  usage: { word: 'Usage and key', icon: 'report', key: 'u', for: ['user'], group: '' },
  pool: { word: 'Pool', icon: 'pool', key: 'p', for: ALL, group: 'Now' },
  models: { word: 'Models', icon: 'models', key: 'm', for: ALL, group: 'Now' },
  queue: { word: 'Queue', icon: 'queue', key: 'q', for: ALL, group: 'Now' },
  batches: { word: 'Batches', icon: 'batches', key: 's', for: EVERYBODY, group: 'Now' },
  events: { word: 'Events and why', icon: 'why', key: 'e', for: ALL, group: 'Past' },
  timeline: { word: 'Time line', icon: 'timeline', key: 't', for: ALL, group: 'Past' },
  report: { word: 'Report', icon: 'report', key: 'r', for: ALL, group: 'Past' },
  account: { word: 'Usage', icon: 'bars', key: 'o', for: ALL, group: 'Past' },
  audit: { word: 'Audit', icon: 'audit', key: 'a', for: ALL, group: 'Past' },
  playground: { word: 'Playground', icon: 'playground', key: 'y', for: EVERYBODY, group: 'Try' },
  leaderboard: { word: 'Leaderboard', icon: 'leaderboard', key: 'b', for: EVERYBODY, group: 'Try' },
  logs: { word: 'Logs', icon: 'logs', key: 'l', for: ALL, group: 'Try' },
  devices: { word: 'Devices', icon: 'devices', key: 'd', for: ALL, group: 'Run' },
  nodes: { word: 'Nodes', icon: 'nodes', key: 'n', for: ALL, group: 'Run' },
  evening: { word: 'Evening', icon: 'evening', key: 'v', for: ALL, group: 'Run' },
  keys: { word: 'Keys', icon: 'keys', key: 'k', for: ALL, group: 'Run' },
  config: { word: 'Configuration', icon: 'config', key: 'c', for: ALL, group: 'Run' },
};
