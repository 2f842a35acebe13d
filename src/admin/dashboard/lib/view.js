// The view library: components are functions that return html`…`. Text in a template is never interpreted as markup.
import { h, render, Fragment, createPortal } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export const html = htm.bind(h);
export { h, render, Fragment, createPortal };
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useId, useErrorBoundary } from '../vendor/hooks.js';
