package api

import (
	"fmt"
	"io"
	"net/http"
	"sync"
)

// inProcess is an http.RoundTripper that runs a handler in a goroutine of its own. Bodies go through pipes both ways,
// so large trees stream here as they do over a socket.
type inProcess struct{ h http.Handler }

// RoundTrip runs the handler and returns as soon as it has sent its header.
func (t inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	pr, pw := io.Pipe()
	w := &pipeWriter{header: make(http.Header), body: pw, ready: make(chan struct{})}
	in := req.Clone(req.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.finish(serve(t.h, w, in))
		in.Body.Close()
	}()
	<-w.ready
	resp := &http.Response{
		StatusCode: w.code, Status: fmt.Sprintf("%d %s", w.code, http.StatusText(w.code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: &pipeBody{PipeReader: pr, done: done}, ContentLength: -1, Request: req,
	}
	return resp, nil
}

// serve turns the panic that aborts an answer into an error; any other panic stays one.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			err = io.ErrUnexpectedEOF
		default:
			panic(p)
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}

// pipeBody waits for the handler when it is closed, so that nothing runs behind its client's back.
type pipeBody struct {
	*io.PipeReader
	done <-chan struct{}
}

// Close stops the answer and waits for the handler to notice.
func (b *pipeBody) Close() error {
	err := b.PipeReader.Close()
	<-b.done
	return err
}

// pipeWriter is the handler's end of the answer.
type pipeWriter struct {
	header http.Header // the handler's; sent is what it was when the answer began
	body   *io.PipeWriter
	ready  chan struct{} // closed once code and sent are set
	once   sync.Once
	code   int
	sent   http.Header
}

// Header, WriteHeader, Write and Flush are http.ResponseWriter and http.Flusher.
func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	w.once.Do(func() {
		w.code, w.sent = code, w.header.Clone()
		close(w.ready)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }

func (w *pipeWriter) finish(err error) {
	w.WriteHeader(http.StatusOK)
	w.body.CloseWithError(err)
}
