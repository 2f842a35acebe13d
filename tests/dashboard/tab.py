"""What every check needs: the pool that runs, other administrators' requests, and a browser window that remembers complaints."""

import json
import os
import re
import urllib.error
import urllib.request

from playwright.sync_api import expect

URL = os.environ["MODEL_POOL_URL"].rstrip("/")
ADMIN, USER, VIEWER = (os.environ.get(f"MODEL_POOL_{name}_KEY", "") for name in ("ADMIN", "USER", "VIEWER"))
SHOTS = os.environ.get("MODEL_POOL_SCREENSHOTS")
# A folder with the files of the dashboard: they are used instead of those in the program, so that a change needs no build.
FILES = os.environ.get("MODEL_POOL_DASHBOARD_FILES")
PATIENCE_MS = 20_000
SCREENS = ["pool", "models", "queue", "batches", "events", "timeline", "report", "account", "audit", "playground", "leaderboard", "logs", "devices", "nodes", "evening", "keys", "config"]
WIDTHS = [(360, 780), (1280, 900), (2560, 1300)]

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def api(method, path, body=None, query=""):
    """A request of another administrator, beside the page."""
    data = None if body is None else json.dumps(body).encode()
    head = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{URL}/admin/{path}{query}", data=data, headers=head, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def unload(*models):
    for model in models:
        try:
            api("POST", "unload", {"model": model, "now": True})
        except urllib.error.HTTPError as error:
            assert error.code == 409, error.read()


def of_user(path, body, kind="application/json"):
    """A request of the user, beside the page."""
    head = {"Authorization": f"Bearer {USER}", "Content-Type": kind}
    request = urllib.request.Request(f"{URL}/v1/{path}", data=body.encode(), headers=head, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def paused_batch(model, requests):
    """A batch of the user that an administrator has paused. Some of its requests may have run."""
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    lines = [json.dumps({"custom_id": str(nth), "method": "POST", "url": "/v1/chat/completions", "body": body}) for nth in range(requests)]
    head = 'Content-Disposition: form-data; name='
    form = f'--x\r\n{head}"purpose"\r\n\r\nbatch\r\n--x\r\n{head}"file"; filename="prompts.jsonl"\r\n\r\n' + "\n".join(lines) + "\n\r\n--x--\r\n"
    file = of_user("files", form, "multipart/form-data; boundary=x")
    batch = of_user("batches", json.dumps({"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}))
    api("PATCH", "batches", {"paused": True}, f"?id={batch['id']}")
    return batch["id"]


def own_file(route):
    name = re.search(r"/dashboard/[0-9a-f]{16}/([\w./-]+)", route.request.url).group(1)
    path = os.path.join(FILES, name)
    route.fulfill(path=path) if os.path.exists(path) else route.continue_()


class Tab:
    """A browser window of its own, which remembers what the page complained about."""

    def __init__(self, browser, width=1280, height=900, theme="light", scripts=(), clock=None):
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        self.context.grant_permissions([])
        if FILES:
            self.context.route(re.compile(r"/dashboard/[0-9a-f]{16}/"), own_file)
        for script in scripts:
            self.context.add_init_script(script)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints = []
        self.page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        self.page.on("console", self.console)
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"a script ran: {dialog.message}"), dialog.dismiss()))
        if clock is not None:
            self.page.clock.install(time=clock)
        self.page.goto(f"{URL}/dashboard")

    def console(self, message):
        # Without a session, and when it has ended, the server answers 401, which the browser writes down itself.
        if message.type == "error" and not re.search(r"status of (401|404|409)|ERR_(INTERNET_DISCONNECTED|CONNECTION_REFUSED|INCOMPLETE)", message.text):
            self.complaints.append(f"console: {message.text}")

    def sign_in(self, key=ADMIN):
        self.page.get_by_label("Key", exact=True).fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.locator(".content")).to_be_visible(timeout=PATIENCE_MS)
        return self

    def go(self, route):
        self.page.goto(f"{URL}/dashboard#/{route}")
        return self.page

    def close(self):
        self.context.close()
        assert not self.complaints, self.complaints


def tab(browser, key=ADMIN, **more):
    return Tab(browser, **more).sign_in(key)


def picture(page, name):
    """A picture for those who want to look."""
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png")
