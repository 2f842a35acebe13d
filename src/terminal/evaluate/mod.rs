//! `model-pool evaluate`: runs the prompts of a file on several models, one model after another, which loads each model only once.
//! Shows the responses side by side, with tokens and times.

mod judge;
mod outcome;
mod prompts;
mod table;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::runtime::Runtime;

use super::args::EvaluateArgs;
use super::conversation::Conversation;
use super::error::CommandError;
use super::interrupt::interrupted;
use super::models::{hub_name, may_be_of_the_hub};
use super::pool_client::PoolClient;
use super::request::quietly;
use super::screen::Screen;
use super::single_prompt::set;
use judge::{Case, MODELS_MAX};
use outcome::{Evaluation, Judgement, Outcome};
use prompts::Prompt;

pub fn run(
    runtime: &Runtime,
    client: &PoolClient,
    args: &EvaluateArgs,
) -> Result<(), CommandError> {
    let read = prompts::read(&args.file, args.separator.as_deref())?;
    for flaw in &read.flaws {
        eprintln!("model-pool: {flaw}");
    }
    if !read.flaws.is_empty() && !args.skip_broken {
        return Err(CommandError::Usage(format!(
            "{} of the lines cannot be used, and no request was sent; correct them, or leave them out with --skip-broken",
            read.flaws.len()
        )));
    }
    let mut models: Vec<String> = args.models.iter().map(|name| hub_name(name)).collect();
    let mut seen = std::collections::BTreeSet::new();
    models.retain(|name| seen.insert(name.clone()));
    if args.judge.is_some() && !(2..=MODELS_MAX).contains(&models.len()) {
        return Err(CommandError::Usage(format!(
            "a judge compares 2 to {MODELS_MAX} different models, and {} {} named",
            models.len(),
            if models.len() == 1 { "is" } else { "are" }
        )));
    }
    let mut evaluation = Evaluation::new(models, read.prompts);
    evaluation.judge = args.judge.as_deref().map(hub_name);
    runtime.block_on(find_all(client, &evaluation))?;
    let mut screen = Screen::new();
    let finished = runtime.block_on(async {
        tokio::select! {
            done = ask_and_judge(client, args, &mut evaluation, &mut screen) => done.map(|()| true),
            () = interrupted() => Ok(false),
        }
    });
    screen.erase_status();
    let width = table::width_of_output();
    let text = if args.json {
        format!("{:#}\n", evaluation.to_json())
    } else {
        table::text(&evaluation, width)
    };
    screen.print(&text)?;
    let summary = |failed: usize, of: usize, what: &str| {
        let message = format!("{failed} of {of} {what} are missing; the table shows why");
        Err(CommandError::Incomplete { message })
    };
    match (finished?, evaluation.failed(), evaluation.unjudged()) {
        (false, ..) => Err(CommandError::Interrupted),
        (true, 0, 0) => Ok(()),
        (true, 0, unjudged) => summary(unjudged, evaluation.judged(), "verdicts"),
        (true, failed, _) => summary(failed, evaluation.count(), "answers"),
    }
}

/// Fails if the pool lacks a model, before other models respond in vain. Other problems are shown in the table.
async fn find_all(client: &PoolClient, evaluation: &Evaluation) -> Result<(), CommandError> {
    for name in evaluation.models.iter().chain(&evaluation.judge) {
        let found = client.find_model(name).await.map_err(CommandError::from);
        if let Err(failure) = found
            && failure.is_unknown_model()
            && !may_be_of_the_hub(name)
        {
            return Err(failure);
        }
    }
    Ok(())
}

async fn ask_and_judge(
    client: &PoolClient,
    args: &EvaluateArgs,
    evaluation: &mut Evaluation,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    ask_all(client, args, evaluation, screen).await?;
    match evaluation.judge.clone() {
        Some(judge) => judge_all(client, args, &judge, evaluation, screen).await,
        None => Ok(()),
    }
}

/// Sends every prompt with several responses to the judge.
async fn judge_all(
    client: &PoolClient,
    args: &EvaluateArgs,
    judge: &str,
    evaluation: &mut Evaluation,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    let cases: Vec<(usize, Case)> = (0..evaluation.prompts.len())
        .filter_map(|row| Some((row, evaluation.case(row)?)))
        .collect();
    let all = cases.len();
    let request = |(row, case): (usize, Case)| async move {
        let mut conversation = Conversation::new(judge, None);
        conversation.parameters.put("temperature", 0.0);
        conversation.prompt(case.question(&args.criteria));
        let response = quietly(client, &conversation.request(true)).await;
        (row, response.map(|response| case.verdict(&response.text)))
    };
    let mut verdicts = stream::iter(cases)
        .map(request)
        .buffer_unordered(args.at_once.max(1));
    let mut done = 0;
    screen.status(&format!("{judge}: 0 of {all} verdicts"));
    while let Some((row, verdict)) = verdicts.next().await {
        done += 1;
        screen.status(&format!("{judge}: {done} of {all} verdicts"));
        let judgement = match verdict {
            Ok(Ok(verdict)) => Judgement::Verdict(verdict),
            Ok(Err(problem)) => Judgement::Failure(problem),
            Err(failure) if failure.is_of_one_request() => Judgement::Failure(failure.to_string()),
            Err(failure) => return Err(failure),
        };
        evaluation.judgements[row] = Some(judgement);
    }
    Ok(())
}

/// Sends all prompts to each model, several at a time. An unreachable server ends the run; a refusal is an outcome.
async fn ask_all(
    client: &PoolClient,
    args: &EvaluateArgs,
    evaluation: &mut Evaluation,
    screen: &mut Screen,
) -> Result<(), CommandError> {
    let chosen = evaluation.models.clone();
    for (column, model) in chosen.iter().enumerate() {
        let prompts: Vec<(usize, Prompt)> =
            evaluation.prompts.iter().cloned().enumerate().collect();
        let all = prompts.len();
        let request = |(row, prompt): (usize, Prompt)| async move {
            let mut conversation = Conversation::new(model, args.ask.system.clone());
            set(&mut conversation, &args.ask);
            conversation.prompt(prompt.text);
            (row, quietly(client, &conversation.request(true)).await)
        };
        let requests = stream::iter(prompts).map(request);
        let mut responses = requests.buffer_unordered(args.at_once.max(1));
        let mut done = 0;
        screen.status(&format!("{model}: 0 of {all} answers"));
        while let Some((row, response)) = responses.next().await {
            done += 1;
            screen.status(&format!("{model}: {done} of {all} answers"));
            let outcome = match response {
                Ok(response) => Outcome::Answer(Box::new(response)),
                Err(failure) if failure.is_of_one_request() => {
                    Outcome::Failure(failure.to_string())
                }
                Err(failure) => return Err(failure),
            };
            evaluation.set(row, column, outcome);
        }
    }
    Ok(())
}
