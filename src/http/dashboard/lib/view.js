// The view library under one name: components are functions that return html`…`. Text in a template is always text, never markup.
import { h, render, Fragment, createPortal } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export const html = htm.bind(h);
export { h, render, Fragment, createPortal };
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useId, useErrorBoundary } from '../vendor/hooks.js';
