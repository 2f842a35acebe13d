//! Formats an evaluation as text: for each prompt the responses in columns side by side, then the totals of each model. Pure.

use super::outcome::{Evaluation, Judgement, Outcome};
use crate::control_chars::{clean, line};
use crate::fold::{fitted, wrapped};
use crate::quantity::seconds;
use crate::row;
use crate::style::{self, Style};
use crate::table::{Column, column, table};

/// Width if the output is not a terminal or does not report its width.
const USUAL_WIDTH: usize = 120;
/// Minimum column width; responses are listed below each other if columns would be narrower.
const COLUMN_MIN: usize = 24;
const GAP: &str = " │ ";
/// Answers are shown completely.
const LINES_MAX: usize = usize::MAX - 1;

/// The width of standard output in columns.
pub fn width_of_output() -> usize {
    match Style::of_stdout() {
        style if style.terminal => style.columns,
        _ => USUAL_WIDTH,
    }
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
            fitted(&line(&prompt.text), width.saturating_sub(14).max(20))
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
            let verdict = verdict(evaluation, judgement);
            let verdict_lines = wrapped(&verdict, Some(width), LINES_MAX);
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
    let columns: Vec<Vec<String>> = texts
        .iter()
        .map(|text| wrapped(text, Some(width), LINES_MAX))
        .collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for nth in 0..height {
        let cells = columns.iter().map(|lines| {
            let cell = lines.get(nth).map(String::as_str).unwrap_or_default();
            let fill = width.saturating_sub(style::width(cell));
            format!("{cell}{}", " ".repeat(fill))
        });
        text += cells.collect::<Vec<_>>().join(GAP).trim_end();
        text.push('\n');
    }
    text
}

fn sums(evaluation: &Evaluation) -> String {
    const COLUMNS: [Column; 11] = [
        column("model"),
        column("answers").right(),
        column("failed").right(),
        column("prompt tokens").right(),
        column("answer tokens").right(),
        column("first token").right(),
        column("answer").right(),
        column("longest wait").right(),
        column("judged").right(),
        column("first").right(),
        column("mean rank").right(),
    ];
    const OF_JUDGE: usize = 3;
    let row = |(column, model): (usize, &String)| {
        let sums = evaluation.sums(column);
        let rank = sums.rank().map(|rank| format!("{rank:.2}"));
        row![
            line(model),
            sums.responses,
            sums.failures,
            sums.prompt_tokens,
            sums.response_tokens,
            sums.first_token.map(seconds),
            sums.total.map(seconds),
            seconds(sums.waited),
            sums.verdicts,
            sums.firsts,
            rank,
        ]
    };
    let rows = evaluation.models.iter().enumerate().map(row);
    let shown = match evaluation.judge {
        Some(_) => COLUMNS.len(),
        None => COLUMNS.len() - OF_JUDGE,
    };
    table(&COLUMNS[..shown], rows, "", Style::PLAIN)
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
    fn answers_are_shown_side_by_side_with_control_characters_escaped() {
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
    fn answers_are_listed_vertically_if_columns_would_be_too_narrow() {
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
}
