//! Formats an evaluation as text: for each prompt the responses in columns side by side, then the totals of each model. Pure.

use super::outcome::{Evaluation, Judgement, Outcome, Sums};
use crate::control_chars::{clean, line};
use crate::quantity::seconds;

/// Width if the output is not a terminal or does not report its width.
const USUAL_WIDTH: usize = 120;
/// Minimum column width; responses are listed below each other if columns would be narrower.
const COLUMN_MIN: usize = 24;
const GAP: &str = " │ ";

/// The width of the terminal in characters.
pub fn width_of_terminal(is_terminal: bool) -> usize {
    let size = is_terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()));
    let columns = size
        .and_then(Result::ok)
        .map(|size| usize::from(size.ws_col));
    columns
        .filter(|columns| *columns > 0)
        .unwrap_or(USUAL_WIDTH)
}

pub fn text(evaluation: &Evaluation, width: usize) -> String {
    let count = evaluation.models.len().max(1);
    let gaps = GAP.chars().count() * (count - 1);
    let column = width.saturating_sub(gaps) / count;
    let mut text = String::new();
    for (row, prompt) in evaluation.prompts.iter().enumerate() {
        text += &format!(
            "── line {}: {}\n",
            prompt.line,
            shortened(&line(&prompt.text), width)
        );
        let cells: Vec<String> = evaluation.of_prompt(row).iter().map(cell).collect();
        if column >= COLUMN_MIN {
            let heads = evaluation.models.iter().map(|model| line(model));
            text += &beside(&heads.collect::<Vec<_>>(), column);
            text += &beside(&cells, column);
        } else {
            for (model, cell) in evaluation.models.iter().zip(&cells) {
                text += &format!("{}:\n{cell}\n", line(model));
            }
        }
        if let Some(judgement) = &evaluation.judgements[row] {
            let verdict_lines = wrapped(&verdict(evaluation, judgement), width);
            text += &format!("{}\n", verdict_lines.join("\n"));
        }
        text.push('\n');
    }
    text + &sums(evaluation)
}

/// Formats a verdict, such as `judged: 1. org/large, 2. org/small (It is complete.)`.
fn verdict(evaluation: &Evaluation, judgement: &Judgement) -> String {
    match judgement {
        Judgement::Failure(error) => format!("(not judged: {})", line(error)),
        Judgement::Verdict(verdict) => {
            let places = verdict.ranking.iter().enumerate();
            let places = places.map(|(place, model)| {
                format!("{}. {}", place + 1, line(&evaluation.models[*model]))
            });
            let reason = verdict.reason.as_deref().map(line);
            let reason = reason
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            format!("judged: {}{reason}", places.collect::<Vec<_>>().join(", "))
        }
    }
}

fn cell(outcome: &Option<Outcome>) -> String {
    match outcome {
        None => "(no request was sent)".to_owned(),
        Some(Outcome::Failure(error)) => format!("(no answer: {})", clean(error)),
        Some(Outcome::Answer(response)) => {
            let text = match response.text.trim() {
                "" => "(an empty answer)".to_owned(),
                text => clean(text),
            };
            format!("{text}\n[{}]", response.figures())
        }
    }
}

/// Formats texts side by side in columns of this width.
fn beside(texts: &[String], width: usize) -> String {
    let columns: Vec<Vec<String>> = texts.iter().map(|text| wrapped(text, width)).collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for nth in 0..height {
        let cells = columns.iter().map(|lines| {
            let cell = lines.get(nth).map(String::as_str).unwrap_or_default();
            let fill = width.saturating_sub(cell.chars().count());
            format!("{cell}{}", " ".repeat(fill))
        });
        text += cells.collect::<Vec<_>>().join(GAP).trim_end();
        text.push('\n');
    }
    text
}

/// Wraps a text to `width` characters, between words if possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.replace('\t', "    ").lines() {
        let mut current = String::new();
        let mut length = 0;
        for word in paragraph.split(' ') {
            let mut word: Vec<char> = word.chars().collect();
            if length > 0 && length + 1 + word.len() > width {
                lines.push(std::mem::take(&mut current));
                length = 0;
            }
            if length > 0 {
                current.push(' ');
                length += 1;
            }
            while word.len() > width {
                let rest = word.split_off(width);
                lines.push(word.into_iter().collect());
                word = rest;
            }
            length += word.len();
            current.extend(word);
        }
        lines.push(current);
    }
    lines
}

fn shortened(text: &str, width: usize) -> String {
    let most = width.saturating_sub(14).max(20);
    if text.chars().count() > most {
        text.chars().take(most - 1).chain(['…']).collect()
    } else {
        text.to_owned()
    }
}

fn sums(evaluation: &Evaluation) -> String {
    let mut heads = vec![
        "model",
        "answers",
        "failed",
        "prompt tokens",
        "answer tokens",
        "first token",
        "answer",
        "longest wait",
    ];
    if evaluation.judge.is_some() {
        heads.extend(["judged", "first", "mean rank"]);
    }
    let mut rows: Vec<Vec<String>> = vec![heads.iter().map(|head| (*head).to_owned()).collect()];
    for (column, model) in evaluation.models.iter().enumerate() {
        let sums = evaluation.sums(column);
        let rank = sums.rank();
        let Sums {
            responses,
            failures,
            prompt_tokens,
            response_tokens,
            first_token,
            total: whole,
            waited,
            verdicts,
            firsts,
            ranks: _,
        } = sums;
        let time = |time: Option<std::time::Duration>| match time {
            Some(time) => seconds(time),
            None => "-".to_owned(),
        };
        let mut row = vec![
            line(model),
            responses.to_string(),
            failures.to_string(),
            prompt_tokens.to_string(),
            response_tokens.to_string(),
            time(first_token),
            time(whole),
            seconds(waited),
        ];
        if evaluation.judge.is_some() {
            row.push(verdicts.to_string());
            row.push(firsts.to_string());
            row.push(rank.map_or_else(|| "-".to_owned(), |rank| format!("{rank:.2}")));
        }
        rows.push(row);
    }
    let widths: Vec<usize> = (0..heads.len())
        .map(|nth| {
            let cells = rows.iter().map(|row| row[nth].chars().count());
            cells.max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(nth, (cell, width))| {
                let fill = " ".repeat(width - cell.chars().count());
                match nth {
                    0 => format!("{cell}{fill}"),
                    _ => format!("{fill}{cell}"),
                }
            });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::prompts::Prompt;
    use super::*;
    use crate::response::ModelResponse;

    fn answer(text: &str) -> Outcome {
        Outcome::Answer(Box::new(ModelResponse {
            text: text.to_owned(),
            ..ModelResponse::default()
        }))
    }

    #[test]
    fn answers_stand_beside_each_other_and_control_characters_are_shown() {
        let prompt = |line| Prompt {
            line,
            text: format!("prompt {line}"),
        };
        let models = vec!["one".to_owned(), "org/two".to_owned()];
        let mut evaluation = Evaluation::new(models, vec![prompt(1), prompt(3)]);
        evaluation.set(0, 0, answer("a first answer of several words\nand lines"));
        evaluation.set(0, 1, answer("\u{1b}[31mred"));
        evaluation.set(1, 1, Outcome::Failure("the model failed".to_owned()));
        let text = text(&evaluation, 90);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "── line 1: prompt 1");
        assert!(
            lines[1].starts_with("one") && lines[1].contains(" │ org/two"),
            "{text}"
        );
        assert!(
            lines[2].starts_with("a first answer of") && lines[2].contains("│ ␛[31mred"),
            "{text}"
        );
        assert!(
            text.contains("(no request was sent)")
                && text.contains("(no answer: the model failed)"),
            "{text}"
        );
        assert!(text.contains("── line 3: prompt 3"), "{text}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 90),
            "{text}"
        );
        assert_eq!(evaluation.failed(), 1);
    }

    #[test]
    fn where_columns_are_too_narrow_answers_stand_below_each_other() {
        let prompts = vec![Prompt {
            line: 1,
            text: "p".to_owned(),
        }];
        let models = (0..6).map(|nth| format!("m{nth}")).collect();
        let mut evaluation = Evaluation::new(models, prompts);
        evaluation.set(0, 5, answer("yes"));
        let text = text(&evaluation, 80);
        assert!(text.contains("m5:\nyes\n["), "{text}");
    }

    #[test]
    fn long_words_are_broken_and_lines_end_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("a\n\nb", 9), ["a", "", "b"]);
    }
}
