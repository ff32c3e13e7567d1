//! A page in the browser, driven over the protocol of Chromium's `DevTools`.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audience::mock::MockServer;
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use support::PATIENCE;

use super::chromium::Chromium;

/// A tab with a profile of its own.
pub(super) struct Page {
    socket: WebSocket<TcpStream>,
    session: Value,
    context: Value,
    last_id: u64,
    /// The events that the browser has sent: console messages, errors and requests.
    events: Vec<Value>,
    url: String,
    /// What the addresses of all requests begin with.
    scope: String,
    /// Dropped last, which may end the browser.
    _chromium: Arc<Chromium>,
}

/// The code of the error of an evaluation that a navigation ended.
const NAVIGATED: i64 = -32000;

impl Page {
    /// Opens the page of a mock and waits until it is live. Returns `None` if there is no browser.
    pub(super) fn open(server: &MockServer) -> Option<Self> {
        Self::open_at(server, "")
    }

    /// Like [`open`](Self::open), with a fragment such as `#contacts`.
    pub(super) fn open_at(server: &MockServer, fragment: &str) -> Option<Self> {
        let mut page = Self::blank(server)?;
        page.go(fragment);
        Some(page)
    }

    /// Opens an empty tab for the page of a mock.
    pub(super) fn blank(server: &MockServer) -> Option<Self> {
        let chromium = Chromium::shared()?;
        let (port, path) = chromium.socket();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) =
            tungstenite::client(format!("ws://127.0.0.1:{port}{path}"), stream).unwrap();
        socket
            .get_ref()
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let mut page = Self {
            socket,
            session: Value::Null,
            context: Value::Null,
            last_id: 0,
            events: Vec::new(),
            scope: format!("{}/_mock/", server.url()),
            url: format!("{}/_mock/", server.url()),
            _chromium: chromium,
        };
        page.context =
            page.send("Target.createBrowserContext", &json!({}))["browserContextId"].take();
        let target = json!({"url": "about:blank", "browserContextId": page.context});
        let target = page.send("Target.createTarget", &target)["targetId"].take();
        let attach = json!({"targetId": target, "flatten": true});
        page.session = page.send("Target.attachToTarget", &attach)["sessionId"].take();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            page.send(&format!("{domain}.enable"), &json!({}));
        }
        page.send(
            "Emulation.setFocusEmulationEnabled",
            &json!({"enabled": true}),
        );
        page.viewport(1280, 900);
        Some(page)
    }

    /// Loads the page and waits until it is live. With a fragment, a page that is loaded already stays.
    pub(super) fn go(&mut self, fragment: &str) {
        if fragment.is_empty() {
            // The document of the page before must not count.
            self.eval("window.isBefore = true");
        }
        let url = format!("{}{fragment}", self.url);
        self.send("Page.navigate", &json!({"url": url}));
        self.wait_for(
            "!window.isBefore && document.getElementById('live')?.textContent === 'Live'",
        );
    }

    /// Loads another page, which may send requests to addresses that begin with `scope`, and waits until it has a heading.
    pub(super) fn visit(&mut self, url: &str, scope: &str) {
        scope.clone_into(&mut self.scope);
        // The document of the page before must not count.
        self.send("Page.navigate", &json!({"url": "about:blank"}));
        self.send("Page.navigate", &json!({"url": url}));
        self.wait_for("document.readyState === 'complete' && document.querySelector('h1')");
    }

    /// Sets whether the scripts of pages run.
    pub(super) fn allow_scripts(&mut self, is_allowed: bool) {
        self.send(
            "Emulation.setScriptExecutionDisabled",
            &json!({"value": !is_allowed}),
        );
    }

    /// Opens the page that describes the service.
    pub(super) fn open_description(&mut self) {
        let url = format!("{}docs", self.url);
        self.send("Page.navigate", &json!({"url": url}));
        self.wait_for("location.pathname.endsWith('/docs') && document.querySelectorAll('main h2').length > 5");
    }

    /// Loads the same address again, as a person does, and waits until the page is live.
    pub(super) fn reload(&mut self) {
        self.eval("document.getElementById('live').textContent = ''");
        self.send("Page.reload", &json!({}));
        self.wait_for("document.getElementById('live')?.textContent === 'Live'");
    }

    /// Runs a script in every page before its own script.
    pub(super) fn run_before_page(&mut self, script: &str) {
        self.send(
            "Page.addScriptToEvaluateOnNewDocument",
            &json!({"source": script}),
        );
    }

    /// Returns what the browser has counted for the page since it was opened, such as `LayoutCount`.
    pub(super) fn counted(&mut self, name: &str) -> f64 {
        self.send("Performance.enable", &json!({}));
        let metrics = self.send("Performance.getMetrics", &json!({}));
        let mut metrics = metrics["metrics"].as_array().unwrap().iter();
        let metric = metrics.find(|metric| metric["name"] == name).unwrap();
        metric["value"].as_f64().unwrap()
    }

    pub(super) fn move_pointer(&mut self, x: i64, y: i64) {
        let event = json!({"type": "mouseMoved", "x": x, "y": y});
        self.send("Input.dispatchMouseEvent", &event);
    }

    pub(super) fn viewport(&mut self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.send("Emulation.setDeviceMetricsOverride", &metrics);
    }

    pub(super) fn dark(&mut self) {
        self.color_scheme("dark");
    }

    /// Sets the color scheme of the system: `light` or `dark`.
    pub(super) fn color_scheme(&mut self, scheme: &str) {
        let scheme = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.send("Emulation.setEmulatedMedia", &json!({"features": scheme}));
    }

    /// Sets the color scheme of the system, and the width.
    pub(super) fn screen(&mut self, scheme: &str, width: u32) {
        self.color_scheme(scheme);
        self.viewport(width, 900);
    }

    /// Evaluates an expression in the page and returns its value.
    #[track_caller]
    pub(super) fn eval(&mut self, expression: &str) -> Value {
        let value = self.eval_until_navigation(expression);
        value.unwrap_or_else(|| panic!("another page came while this ran: {expression}"))
    }

    /// Returns `None` if the browser went to another page meanwhile.
    #[track_caller]
    fn eval_until_navigation(&mut self, expression: &str) -> Option<Value> {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut result = match self.try_send("Runtime.evaluate", &parameters) {
            Ok(result) => result,
            Err(error) if error["code"] == NAVIGATED => return None,
            Err(error) => panic!("{expression}: {error}"),
        };
        assert!(
            result.get("exceptionDetails").is_none(),
            "{expression}: {result}"
        );
        Some(result["result"]["value"].take())
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(super) fn wait_for(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        let condition = format!("Boolean({expression})");
        while self.eval_until_navigation(&condition) != Some(Value::Bool(true)) {
            if Instant::now() > deadline {
                let text = self.text("body");
                panic!("it never came true: {expression}\n{text}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the first element with this selector shows a text.
    #[track_caller]
    pub(super) fn wait_for_text(&mut self, selector: &str, text: &str) {
        let text = Value::from(text);
        self.wait_for(&format!("{}?.innerText.includes({text})", query(selector)));
    }

    /// Keeps the messages of the page from now on, until it is loaded again. Each is shown for a few seconds only, and a
    /// busy machine may look for it later.
    pub(super) fn keep_messages(&mut self) {
        self.eval(
            "{ window.said = ''; const message = document.getElementById('message'); \
             new MutationObserver(() => { said += message.textContent; }).observe(message, { childList: true }); }",
        );
    }

    /// Waits until the page has said a text since [`keep_messages`](Self::keep_messages).
    #[track_caller]
    pub(super) fn wait_until_said(&mut self, text: &str) {
        self.wait_for(&format!("said.includes({})", Value::from(text)));
    }

    /// Returns the text that the first element with this selector shows.
    #[track_caller]
    pub(super) fn text(&mut self, selector: &str) -> String {
        let text = self.eval(&format!("{}?.innerText ?? ''", query(selector)));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks the first element with this selector.
    #[track_caller]
    pub(super) fn click(&mut self, selector: &str) {
        self.wait_for(&query(selector));
        // A click can lead to another page before its result is here.
        self.eval_until_navigation(&format!("{}.click()", query(selector)));
    }

    /// Puts a value into a field, as typing or choosing does.
    #[track_caller]
    pub(super) fn fill(&mut self, selector: &str, value: &str) {
        let (field, value) = (query(selector), Value::from(value));
        self.eval(&format!(
            "{{ const field = {field}; field.value = {value}; \
             for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, {{ bubbles: true }})); }}"
        ));
    }

    /// Presses a key, as a person does.
    pub(super) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            " " => (32, " "),
            other => panic!("{other} has no code here"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            self.send("Input.dispatchKeyEvent", &event);
        }
    }

    /// Returns a screenshot as base64.
    pub(super) fn screenshot(&mut self) -> String {
        let shot = self.send("Page.captureScreenshot", &json!({"format": "png"}));
        shot["data"].as_str().unwrap().to_owned()
    }

    /// Panics if the page has logged an error, has thrown one, or has sent a request to another place.
    #[track_caller]
    pub(super) fn assert_no_problems(&mut self) {
        self.eval("0");
        let problems: Vec<&Value> = self
            .events
            .iter()
            .filter(|event| {
                let parameters = &event["params"];
                match event["method"].as_str().unwrap_or_default() {
                    "Runtime.exceptionThrown" => true,
                    "Runtime.consoleAPICalled" => parameters["type"] != "log",
                    "Log.entryAdded" => parameters["entry"]["level"] == "error",
                    "Network.requestWillBeSent" => {
                        let url = parameters["request"]["url"].as_str().unwrap();
                        !url.starts_with(&self.scope)
                            && !url.starts_with("data:")
                            && url != "about:blank"
                    }
                    _ => false,
                }
            })
            .collect();
        assert!(problems.is_empty(), "{problems:#?}");
    }

    /// Sends a command and returns its result.
    #[track_caller]
    fn send(&mut self, method: &str, parameters: &Value) -> Value {
        let result = self.try_send(method, parameters);
        result.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    #[track_caller]
    fn try_send(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        self.last_id += 1;
        let id = self.last_id;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_null() && !method.starts_with("Target.") {
            command["sessionId"] = self.session.clone();
        }
        self.socket
            .send(Message::text(command.to_string()))
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "no response to {method}");
            let message = match self.socket.read() {
                Ok(message) => message,
                Err(tungstenite::Error::Io(error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(error) => panic!("the browser is gone: {error}"),
            };
            let Message::Text(text) = message else {
                continue;
            };
            let mut message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == id {
                return match message.get_mut("error") {
                    Some(error) => Err(error.take()),
                    None => Ok(message["result"].take()),
                };
            }
            self.events.push(message);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let context = json!({"browserContextId": self.context});
        self.send("Target.disposeBrowserContext", &context);
    }
}

fn query(selector: &str) -> String {
    format!("document.querySelector({})", Value::from(selector))
}
