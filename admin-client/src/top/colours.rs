//! The colours of `top`: the sixteen that every terminal has, or no colours. Pure.

use ratatui::style::{Color, Modifier, Style};

use crate::style::Tint;

/// `false` for `NO_COLOR` or a terminal without colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colours(pub bool);

impl Colours {
    pub fn style(self, tint: Tint) -> Style {
        let colour = |colour: Color| {
            if self.0 {
                Style::new().fg(colour)
            } else {
                Style::new()
            }
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

    /// Leaves out shades together with colours: not every terminal has them.
    pub fn faint(self) -> Style {
        if self.0 {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        }
    }

    /// The border of the pane with the keyboard focus.
    pub fn focus(self) -> Style {
        if self.0 {
            Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD)
        } else {
            Style::new().add_modifier(Modifier::BOLD)
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
