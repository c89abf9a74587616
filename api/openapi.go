package api

import (
	"net/http"
	"reflect"
	"strings"
	"time"
)

// openapi answers the OpenAPI 3.1 document, made from the routes and the Go types of their answers, so that it cannot
// say anything else than what is served.
func (s *server) openapi(w http.ResponseWriter, _ *http.Request, _ query) error {
	reply(w, http.StatusOK, Document(s.o.Version))
	return nil
}

// answers are the types of the answers, by schema name.
var answers = map[string]any{
	"Status": Status{}, "Commit": Commit{}, "Log": Log{}, "CheckEvent": CheckEvent{}, "Space": Space{}, "StopEvent": StopEvent{},
	"ListLine": ListLine{}, "Entry": Entry{}, "Done": Done{}, "Totals": Totals{}, "Error": Error{},
}

// Document returns the OpenAPI document of a program version.
func Document(version string) map[string]any {
	paths := make(map[string]any)
	for _, r := range routes {
		at, ok := paths[r.Path].(map[string]any)
		if !ok {
			at = make(map[string]any)
			paths[r.Path] = at
		}
		at[strings.ToLower(r.Method)] = r.document()
	}
	schemas := map[string]any{"OpenAPI": map[string]any{"type": "object"}}
	for name, v := range answers {
		schemas[name] = schemaOf(reflect.TypeOf(v))
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{"title": "wsfs control API", "version": version,
			"description": "Served on the control socket of a daemon. Paths are absolute in the workspace and percent-encoded bytes."},
		"paths":      paths,
		"components": map[string]any{"schemas": schemas},
	}
}

func (r route) document() map[string]any {
	answer := map[string]any{"description": "success"}
	switch {
	case r.Schema != "":
		media := r.Answer
		if media == "" {
			media = "application/json"
		}
		answer["content"] = map[string]any{media: map[string]any{"schema": ref(r.Schema)}}
	case r.Answer != "":
		answer["content"] = map[string]any{r.Answer: map[string]any{}}
	}
	d := map[string]any{"summary": r.Summary, "responses": map[string]any{
		"200":     answer,
		"default": map[string]any{"description": "failure", "content": map[string]any{"application/json": map[string]any{"schema": ref("Error")}}},
	}}
	if r.Body != "" {
		d["requestBody"] = map[string]any{"required": true, "content": map[string]any{r.Body: map[string]any{}}}
	}
	params := []any{}
	for _, p := range r.Params {
		params = append(params, p.document())
	}
	if len(params) > 0 {
		d["parameters"] = params
	}
	return d
}

func (p param) document() map[string]any {
	schema := map[string]any{"type": "string"}
	switch p.Kind {
	case "bool":
		schema = map[string]any{"type": "boolean"}
	case "int":
		schema = map[string]any{"type": "integer", "minimum": 0}
	case "octal":
		schema["pattern"] = "^[0-7]{1,4}$"
	case "duration":
		schema["description"] = "as 1m30s"
	}
	return map[string]any{"name": p.Name, "in": "query", "required": p.Must, "description": p.Text, "schema": schema}
}

func ref(name string) map[string]any { return map[string]any{"$ref": "#/components/schemas/" + name} }

// schemaOf describes a Go type as encoding/json writes it.
func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Struct:
		props := make(map[string]any)
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			if f.IsExported() && !f.Anonymous && name != "-" {
				props[name] = schemaOf(f.Type)
			}
		}
		return map[string]any{"type": "object", "properties": props}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	}
	return map[string]any{"type": "integer"}
}
