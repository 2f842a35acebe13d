//! The colours of `top`: the sixteen that every terminal has, or none. Pure.

use ratatui::style::{Color, Modifier, Style};

use crate::style::Tint;

/// `false`: no colours, for `NO_COLOR` or a terminal without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colours(pub bool);

impl Colours {
    pub fn of(self, tint: Tint) -> Style {
        let colour = |colour: Color| match self.0 {
            true => Style::new().fg(colour),
            false => Style::new(),
        };
        match tint {
            Tint::Good => colour(Color::Green),
            Tint::Warning => colour(Color::Yellow),
            Tint::Bad => colour(Color::Red).add_modifier(Modifier::BOLD),
            Tint::Faint => self.faint(),
            Tint::Strong => Style::new().add_modifier(Modifier::BOLD),
            Tint::Owner(nth) => colour(OWNERS[nth % OWNERS.len()]),
        }
    }

    /// Without colours there is no shade either: not every terminal has one.
    pub fn faint(self) -> Style {
        match self.0 {
            true => Style::new().add_modifier(Modifier::DIM),
            false => Style::new(),
        }
    }

    /// The border of the pane that the keys go to.
    pub fn focus(self) -> Style {
        match self.0 {
            true => Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD),
            false => Style::new().add_modifier(Modifier::BOLD),
        }
    }
}

const OWNERS: [Color; 8] = [
    Color::Blue,
    Color::Magenta,
    Color::Cyan,
    Color::Green,
    Color::Yellow,
    Color::LightBlue,
    Color::LightMagenta,
    Color::LightCyan,
];
