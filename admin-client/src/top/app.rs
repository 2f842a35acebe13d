//! The state of `top`: the pool's latest view, the marked rows, the filter, the sort order, and the dialog. News, keys and the
//! mouse change it. Returns requests to the server for `jobs` to carry out. Pure.

mod input;

use chrono::{DateTime, TimeDelta, Utc};
use ratatui::layout::Rect;

use super::colours::Colours;
use super::dialog::{Dialog, Kind};
use super::feed::News;
use super::grid::Row;
use super::jobs::{Job, Outcome};
use super::rows::{Pane, Sort, rows};
use super::view::View;
use crate::render::quantity::Clock;
use crate::style::clean_line;

/// Seconds for which a message replaces the explanation of the keys.
const NOTICE_SECONDS: i64 = 10;

/// A request from the app to the event loop.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    Quit,
    /// Starts a job whose result belongs to the dialog with this number.
    Start(Job, u64),
}

#[derive(Debug)]
pub enum Link {
    Live,
    Lost { since: DateTime<Utc>, why: String },
}

/// The marked row of a pane. The id keeps the row marked while the list changes.
#[derive(Debug, Default)]
struct Cursor {
    id: Option<String>,
    row: usize,
}

#[derive(Debug)]
pub struct App {
    pub view: View,
    pub link: Link,
    pub server: String,
    pub colours: Colours,
    pub pane: Pane,
    /// Shows only the current pane.
    pub is_alone: bool,
    pub filter: String,
    pub is_typing_filter: bool,
    pub sort: Sort,
    pub dialog: Option<Dialog>,
    notice: Option<(String, bool, DateTime<Utc>)>,
    cursors: [Cursor; 4],
    dialogs: u64,
    /// The areas of the panes' rows in the last picture, each with the number of its first row.
    pub areas: Vec<(Pane, Rect, usize)>,
    /// The first row that each pane shows.
    pub firsts: [usize; 4],
    /// Rows per page and the dialog's maximum scroll offset, as of the last picture.
    pub page: usize,
    pub scroll_max: usize,
}

impl App {
    pub fn new(view: View, server: &str, colours: Colours) -> App {
        let mut app = App {
            view: View::default(),
            link: Link::Live,
            server: server.to_owned(),
            colours,
            pane: Pane::Models,
            is_alone: false,
            filter: String::new(),
            is_typing_filter: false,
            sort: Sort::by(0),
            dialog: None,
            notice: None,
            cursors: Default::default(),
            dialogs: 0,
            areas: Vec::new(),
            firsts: [0; 4],
            page: 10,
            scroll_max: 0,
        };
        app.view.replace(view);
        app
    }

    /// Takes news of the pool.
    pub fn take(&mut self, news: News, now: DateTime<Utc>) {
        match news {
            News::View(view) => {
                if let Link::Lost { .. } = self.link {
                    self.say("The connection is back.", false, now);
                }
                self.link = Link::Live;
                self.view.replace(*view);
            }
            News::Change(change) => {
                self.link = Link::Live;
                self.view.apply(*change);
            }
            News::Events(events) => self.view.add_events(events),
            News::Lost(why) => {
                let since = match self.link {
                    Link::Lost { since, .. } => since,
                    Link::Live => now,
                };
                self.link = Link::Lost { since, why };
            }
        }
    }

    /// Takes the result of a job. The result of an order is always shown; other results only in the dialog that requested them.
    pub fn finish(&mut self, number: u64, outcome: Outcome, now: DateTime<Utc>) {
        let mut dialog = self.dialog.take();
        let own = dialog.as_mut().filter(|dialog| dialog.number == number);
        match (outcome, own) {
            (Outcome::Done(text), own) => {
                self.say(&text, false, now);
                if own.is_some() {
                    dialog = None;
                }
            }
            (Outcome::Failed(text), Some(own)) => own.kind = Kind::Failed(clean_line(&text)),
            (Outcome::Failed(text), None) => self.say(&text, true, now),
            (Outcome::Plan(newer), Some(own)) => {
                if let Kind::Plan { plan, .. } | Kind::Load { plan, .. } = &mut own.kind {
                    *plan = Some(newer);
                }
            }
            (Outcome::Outdated(newer), Some(own)) => {
                if let Kind::Load {
                    plan,
                    is_outdated,
                    is_ordered,
                    ..
                } = &mut own.kind
                {
                    (*plan, *is_outdated, *is_ordered) = (Some(newer), true, false);
                }
            }
            (Outcome::Outdated(_), None) => {
                let text = "Nothing was loaded: the plan changed before the order was given.";
                self.say(text, true, now);
            }
            (Outcome::Why(why), Some(own)) => own.kind = Kind::Why(Some(why)),
            (Outcome::Log(line), Some(own)) => own.add_line(line),
            (Outcome::LogEnded, Some(own)) => {
                if let Kind::Log { is_over, .. } = &mut own.kind {
                    *is_over = true;
                }
            }
            (_, None) => {}
        }
        self.dialog = dialog;
    }

    pub fn rows(&self, pane: Pane, clock: Clock) -> Vec<Row> {
        rows(pane, &self.view, &self.filter, self.sort, clock)
    }

    /// The number of the marked row. If the row is gone, the row in its place is marked.
    pub fn marked(&mut self, pane: Pane, rows: &[Row]) -> usize {
        let cursor = &mut self.cursors[pane as usize];
        let found = rows
            .iter()
            .position(|row| Some(&row.id) == cursor.id.as_ref());
        cursor.row = found.unwrap_or(cursor.row.min(rows.len().saturating_sub(1)));
        // The newest event stays marked until the user marks another one.
        let follows = pane == Pane::Events && cursor.row == 0 && found.is_none();
        cursor.id = if follows {
            None
        } else {
            rows.get(cursor.row).map(|row| row.id.clone())
        };
        cursor.row
    }

    /// A recent message, and true if it is bad news.
    pub fn notice(&self, now: DateTime<Utc>) -> Option<(&str, bool)> {
        let (text, is_bad, at) = self.notice.as_ref()?;
        (now - *at < TimeDelta::seconds(NOTICE_SECONDS)).then_some((text, *is_bad))
    }

    fn say(&mut self, text: &str, is_bad: bool, now: DateTime<Utc>) {
        self.notice = Some((clean_line(text), is_bad, now));
    }
}
