"""A list of tasks over HTTP: POST /tasks {"title": ...}, GET /tasks, GET, PUT and DELETE /tasks/ID."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

tasks = {}
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        parts = urlsplit(self.path)
        lock.acquire()
        if parts.path == "/tasks":
            found = list(tasks.values())
            done = parse_qs(parts.query).get("done")
            if done:
                found = [task for task in found if bool(task["done"]) == bool(done)]
            self.answer(200, found)
        else:
            self.answer(200, tasks.get(self.task_id()))
        lock.release()

    def do_POST(self):
        lock.acquire()
        body = self.body()
        task = {"id": len(tasks) + 1, "title": body["title"], "done": False}
        tasks[task["id"]] = task
        self.answer(201, task)
        lock.release()

    def do_PUT(self):
        lock.acquire()
        body = self.body()
        task = tasks.get(self.task_id())
        if task:
            task.update({key: body[key] for key in ("title", "done") if key in body})
            self.answer(200, task)
        else:
            self.answer(404, {"error": "no such task"})
        lock.release()

    def do_DELETE(self):
        lock.acquire()
        self.answer(200, tasks.pop(self.task_id(), None))
        lock.release()

    def task_id(self):
        last = urlsplit(self.path).path.rsplit("/", 1)[-1]
        return int(last) if last.isdigit() else None

    def body(self):
        size = int(self.headers.get("Content-Length", 0))
        return json.loads(self.rfile.read(size).decode("latin-1"))

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, form, *arguments):
        print(form % arguments, flush=True)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
