// Signs of 16 by 16, drawn as lines in the colour of the text.
import { html } from '../lib/view.js';

const PATHS = {
  pool: 'M2 3.5h12M2 3.5v9h12v-9M5.5 3.5v9M9 3.5v5M5.5 8.5H14',
  models: 'M8 1.8l5.5 3v6.4L8 14.2l-5.5-3V4.8zM2.5 4.8L8 8l5.5-3.2M8 8v6.2',
  batches: 'M5 4.5V2h8.500v9.500H11M2.500 4.500H11V14H2.500zM5 8h3.500M5 10.800h3.500',
  queue: 'M2.5 4h11M2.5 8h7.5M2.5 12h4',
  timeline: 'M2 13.5V2.5M2 4.5h6M5 8h7M8 11.5h6',
  events: 'M8 14.2A6.2 6.2 0 108 1.8a6.2 6.2 0 000 12.4zM8 4.8V8l2.2 1.6',
  why: 'M8 14.2A6.2 6.2 0 108 1.8a6.2 6.2 0 000 12.4zM6.3 6.3a1.75 1.75 0 113 1.3c-.8.6-1.3.9-1.3 1.7M8 11.4v.1',
  playground: 'M2.2 3h11.6v8H7.5L4.5 13.6V11H2.2z',
  leaderboard: 'M2 13.5V9h4v4.5M6 13.5V4h4v9.5M10 13.5V7h4v6.5M1.5 13.5h13',
  logs: 'M2.5 2.5h11v11h-11zM5 5.8l2 1.9-2 1.9M8.5 10h2.7',
  nodes: 'M2 2.5h6v4.5H2zM8 9h6v4.5H8zM5 7v4.3h3M8 4.8h3.3V9',
  devices: 'M4.5 4.5h7v7h-7zM6.5 1.8v2.7M9.5 1.8v2.7M6.5 11.5v2.7M9.5 11.5v2.7M1.8 6.5h2.7M1.8 9.5h2.7M11.5 6.5h2.7M11.5 9.5h2.7',
  evening: 'M13.2 9.6A5.7 5.7 0 016.4 2.8a5.7 5.7 0 106.8 6.8z',
  keys: 'M10.2 9.4a3.8 3.8 0 10-3.6-2.6L2 11.4V14h2.6v-1.8h1.8v-1.8l1.6-1.2c.6.2 1.4.3 2.2.2zM10.9 5.2v.1',
  audit: 'M3.5 1.8h6l3 3v9.4h-9zM9.5 1.8v3h3M5.8 8h4.4M5.8 10.8h4.4',
  report: 'M2 13.5h12M4 13.500V8M8 13.500V3M12 13.500V6',
  config: 'M2 4.5h6.5M12 4.5h2M2 11.5h2M7.5 11.5H14M10.2 2.8v3.4M5.8 9.8v3.4',
  search: 'M7 12A5 5 0 107 2a5 5 0 000 10zM10.6 10.6L14 14',
  close: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  check: 'M2.8 8.6l3.4 3.4 7-7.6',
  down: 'M3.5 6l4.5 4.5L12.5 6',
  right: 'M6 3.5l4.5 4.5L6 12.5',
  more: 'M3 8h.01M8 8h.01M13 8h.01',
  pin: 'M8 1.9l1.8 3.9 4.2.5-3.1 2.9.8 4.2L8 11.3l-3.7 2.1.8-4.2L2 6.3l4.2-.5z',
  play: 'M4.5 2.8l8.2 5.2-8.2 5.2z',
  pause: 'M5.5 3v10M10.5 3v10',
  stop: 'M4 4h8v8H4z',
  up: 'M8 13V3M3.8 7.2L8 3l4.2 4.2',
  eject: 'M3 12.5h10M8 3l4.6 6H3.4z',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  download: 'M8 2v8M4.5 7L8 10.5 11.5 7M2.5 13.5h11',
  sun: 'M8 11a3 3 0 100-6 3 3 0 000 6zM8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9',
  menu: 'M2 4h12M2 8h12M2 12h12',
  person: 'M8 7.8a2.9 2.9 0 100-5.8 2.9 2.9 0 000 5.8zM2.6 14c.5-2.7 2.7-4 5.4-4s4.900 1.300 5.400 4',
  alert: 'M8 2l6.400 11.500H1.600zM8 6.500v3.200M8 11.600v.1',
  plus: 'M8 3v10M3 8h10',
  bars: 'M2 3.500h12v3H2zM2 9.500h12v3H2z',
  map: 'M2 2.500h12v11H2zM8 2.500v11M8 7h6M2 9.500h6',
  out: 'M6.500 2.500h-4v11h4M10 5l3 3-3 3M13 8H6',
};

export function Icon({ name, size = 16 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round"
    stroke-linejoin="round" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;
}
