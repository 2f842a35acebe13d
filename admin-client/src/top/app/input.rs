//! Keys and the mouse of `top`: what each does to the state, and the request that it makes.

use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Position;

use super::super::dialog::{Dialog, Kind};
use super::super::grid::{Row, places};
use super::super::jobs::Job;
use super::super::rows::{PANES, Pane, Sort};
use super::super::view::event_id;
use super::{App, Cursor, Request};
use crate::render::quantity::Clock;

const FILTER_MAX_CHARS: usize = 100;

impl App {
    /// Handles a key or the mouse.
    pub fn input(&mut self, event: &Event, clock: Clock) -> Option<Request> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(*key, clock),
            Event::Mouse(mouse) => {
                self.mouse(*mouse, clock);
                None
            }
            _ => None,
        }
    }

    fn key(&mut self, key: KeyEvent, clock: Clock) -> Option<Request> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return matches!(key.code, KeyCode::Char('c')).then_some(Request::Quit);
        }
        if self.dialog.is_some() {
            return self.dialog_key(key.code, clock);
        }
        if self.is_typing_filter {
            self.filter_key(key.code);
            return None;
        }
        self.notice = None;
        match key.code {
            KeyCode::Char('q') => return Some(Request::Quit),
            KeyCode::Tab => self.next_pane(1),
            KeyCode::BackTab => self.next_pane(PANES.len() - 1),
            KeyCode::Char(digit @ '1'..='4') => {
                let nth = digit as usize - '1' as usize;
                self.pane = PANES[nth];
            }
            KeyCode::Char('z') => self.is_alone = !self.is_alone,
            KeyCode::Char('/') => self.is_typing_filter = true,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => self.is_alone = false,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('S') => self.sort.is_down = !self.sort.is_down,
            KeyCode::Char('?') | KeyCode::F(1) => self.open(Kind::Help),
            KeyCode::Enter => self.open_row(clock),
            KeyCode::Char(letter @ ('l' | 'u' | 'p' | 'w' | 'L')) => {
                return self.act(letter, clock);
            }
            code => self.move_by(code, clock),
        }
        None
    }

    fn next_pane(&mut self, by: usize) {
        self.pane = PANES[(self.pane as usize + by) % PANES.len()];
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter | KeyCode::Down | KeyCode::Tab => self.is_typing_filter = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing_filter = false;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_MAX_CHARS => {
                self.filter.push(letter);
            }
            _ => {}
        }
    }

    fn move_by(&mut self, code: KeyCode, clock: Clock) {
        let rows = self.rows(self.pane, clock);
        let last = rows.len().saturating_sub(1);
        let now = self.marked(self.pane, &rows);
        let next = match code {
            KeyCode::Up | KeyCode::Char('k') => now.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => now + 1,
            KeyCode::PageUp => now.saturating_sub(self.page),
            KeyCode::PageDown => now + self.page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => return,
        };
        self.mark(self.pane, next.min(last), &rows);
    }

    fn mark(&mut self, pane: Pane, row: usize, rows: &[Row]) {
        let id = rows.get(row).map(|row| row.id.clone());
        self.cursors[pane as usize] = Cursor { id, row };
    }

    fn marked_row(&mut self, clock: Clock) -> Option<Row> {
        let mut rows = self.rows(self.pane, clock);
        let nth = self.marked(self.pane, &rows);
        (nth < rows.len()).then(|| rows.swap_remove(nth))
    }

    fn open(&mut self, kind: Kind) {
        self.dialogs += 1;
        self.dialog = Some(Dialog {
            number: self.dialogs,
            kind,
            scroll: 0,
        });
    }

    /// Opens a dialog that waits for the job's result.
    fn start(&mut self, kind: Kind, job: Job) -> Option<Request> {
        self.open(kind);
        Some(Request::Start(job, self.dialogs))
    }

    /// Opens the details of the marked row.
    fn open_row(&mut self, clock: Clock) {
        let Some(row) = self.marked_row(clock) else {
            return;
        };
        let event = self
            .view
            .events
            .iter()
            .position(|event| event_id(event) == row.id);
        let kind = match (self.pane, row.model) {
            (Pane::Devices, _) => Kind::Device(row.id),
            (Pane::Events, _) => match event.and_then(|nth| self.view.events.get(nth)) {
                Some(event) => Kind::Event(Box::new(event.clone())),
                None => return,
            },
            (_, Some(model)) => Kind::Model(model),
            (_, None) => return,
        };
        self.open(kind);
    }

    /// Handles a letter: an action on the marked row's model.
    fn act(&mut self, letter: char, clock: Clock) -> Option<Request> {
        let row = self.marked_row(clock);
        if let ('w', Pane::Events, Some(row)) = (letter, self.pane, &row) {
            let id = row.id.clone();
            return self.start(Kind::Why(None), Job::WhyEvent { id });
        }
        let Some(model) = row.and_then(|row| row.model) else {
            let text = "Mark a row with a model first: press 2 for the models.";
            self.say(text, true, clock.now);
            return None;
        };
        let (kind, job) = match letter {
            'l' => (
                Kind::Load {
                    model: model.clone(),
                    plan: None,
                    is_outdated: false,
                    is_ordered: false,
                },
                Job::Plan { model },
            ),
            'p' => (
                Kind::Plan {
                    model: model.clone(),
                    plan: None,
                },
                Job::Plan { model },
            ),
            'w' => (Kind::Why(None), Job::WhyModel { model }),
            'L' => (
                Kind::Log {
                    model: model.clone(),
                    lines: Default::default(),
                    is_over: false,
                },
                Job::Logs { model },
            ),
            _ => {
                self.open(Kind::Unload(model));
                return None;
            }
        };
        self.start(kind, job)
    }

    fn dialog_key(&mut self, code: KeyCode, clock: Clock) -> Option<Request> {
        let page = self.page.max(1);
        match code {
            KeyCode::Esc | KeyCode::Char('q') => self.dialog = None,
            KeyCode::Enter => return self.confirm(),
            KeyCode::Char('w') => {
                let id = match self.dialog.as_ref().map(|dialog| &dialog.kind) {
                    Some(Kind::Event(event)) => event_id(event),
                    _ => return None,
                };
                return self.start(Kind::Why(None), Job::WhyEvent { id });
            }
            KeyCode::Char(letter @ ('l' | 'u' | 'p' | 'L')) => {
                // Leads from a model's details directly to an action on it.
                if let Some(Kind::Model(_)) = self.dialog.as_ref().map(|dialog| &dialog.kind) {
                    return self.act(letter, clock);
                }
            }
            KeyCode::Up | KeyCode::Char('k') => self.scroll(1, true),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1, false),
            KeyCode::PageUp => self.scroll(page, true),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll(page, false),
            KeyCode::Home | KeyCode::Char('g') => self.scroll(usize::MAX, true),
            KeyCode::End | KeyCode::Char('G') => self.scroll(usize::MAX, false),
            _ => {}
        }
        None
    }

    fn scroll(&mut self, by: usize, is_up: bool) {
        let max = self.scroll_max;
        if let Some(dialog) = &mut self.dialog {
            // A log's scroll position is counted from its end.
            let now = if is_up == dialog.is_log() {
                dialog.scroll.saturating_add(by)
            } else {
                dialog.scroll.saturating_sub(by)
            };
            dialog.scroll = now.min(max);
        }
    }

    /// Handles Enter in a dialog: gives the order that is shown, or closes the dialog.
    fn confirm(&mut self) -> Option<Request> {
        let view = &self.view;
        let dialog = self.dialog.as_mut()?;
        let number = dialog.number;
        if let Some((model, shown)) = dialog.load_effect(view) {
            if let Kind::Load { is_ordered, .. } = &mut dialog.kind {
                *is_ordered = true;
            }
            return Some(Request::Start(Job::Load { model, shown }, number));
        }
        match &dialog.kind {
            // The order's result is still outstanding.
            Kind::Load {
                is_ordered: true, ..
            }
            | Kind::Load { plan: None, .. } => None,
            Kind::Unload(model) if view.model(model).is_some() => {
                let job = Job::Unload {
                    model: model.clone(),
                };
                self.dialog = None;
                Some(Request::Start(job, number))
            }
            _ => {
                self.dialog = None;
                None
            }
        }
    }

    fn mouse(&mut self, mouse: MouseEvent, clock: Clock) {
        const WHEEL_ROWS: usize = 3;
        let at = Position::new(mouse.column, mouse.row);
        match mouse.kind {
            MouseEventKind::ScrollUp if self.dialog.is_some() => self.scroll(WHEEL_ROWS, true),
            MouseEventKind::ScrollDown if self.dialog.is_some() => self.scroll(WHEEL_ROWS, false),
            _ if self.dialog.is_some() => {}
            MouseEventKind::ScrollUp => self.wheel(at, KeyCode::Up, clock),
            MouseEventKind::ScrollDown => self.wheel(at, KeyCode::Down, clock),
            MouseEventKind::Down(MouseButton::Left) => self.click(at, clock),
            _ => {}
        }
    }

    fn wheel(&mut self, at: Position, code: KeyCode, clock: Clock) {
        if let Some((pane, _, _)) = self.areas.iter().find(|(_, area, _)| area.contains(at)) {
            self.pane = *pane;
            self.move_by(code, clock);
        }
    }

    /// Marks the row below the pointer. A click on a column title of the models sorts by that column.
    fn click(&mut self, at: Position, clock: Clock) {
        let found = self.areas.iter().find(|(_, area, _)| area.contains(at));
        let Some((pane, area, first)) = found.copied() else {
            return;
        };
        self.pane = pane;
        if at.y > area.y {
            let rows = self.rows(pane, clock);
            let row = first + usize::from(at.y - area.y) - 1;
            if row < rows.len() {
                self.mark(pane, row, &rows);
            }
            return;
        }
        let columns = places(pane.columns(), area.width);
        let x = at.x - area.x;
        let column = columns
            .iter()
            .find(|(_, left, width)| x >= *left && x <= left + width);
        if let (Pane::Models, Some((nth, _, _))) = (pane, column) {
            if self.sort.column == *nth {
                self.sort.is_down = !self.sort.is_down
            } else {
                self.sort = Sort::by(*nth)
            }
        }
    }
}
