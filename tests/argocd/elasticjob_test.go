// Dropped into Argo CD's util/lua by hack/argocd-gate: our ConfigMap and our objects, as Argo CD itself reads and compares them.
package lua_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/argoproj/gitops-engine/pkg/health"

	applicationpkg "github.com/argoproj/argo-cd/v3/pkg/apiclient/application"
	appsv1 "github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	argodiff "github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/argo-cd/v3/util/settings"
)

var folder = os.Getenv("ELASTICJOB_ARGOCD")

func read(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}

func object(t *testing.T, path string) *unstructured.Unstructured {
	t.Helper()
	found := map[string]any{}
	read(t, path, &found)
	return &unstructured.Unstructured{Object: found}
}

// overrides are those that Argo CD makes of the ConfigMap. Their scripts get no more libraries than it gives.
func overrides(t *testing.T) map[string]appsv1.ResourceOverride {
	t.Helper()
	given := corev1.ConfigMap{}
	read(t, filepath.Join(folder, "argocd-cm.yaml"), &given)
	labels := map[string]string{"app.kubernetes.io/part-of": "argocd"}
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "argocd-secret", Namespace: given.Namespace, Labels: labels}}
	found, err := settings.NewSettingsManager(t.Context(), fake.NewClientset(&given, &secret), given.Namespace).GetResourceOverrides()
	require.NoError(t, err)
	return found
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "resource_customizations", pattern))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

func TestElasticJobHealthByConfigMap(t *testing.T) {
	checks := lua.ResourceHealthOverrides(overrides(t))
	for _, file := range files(t, "*/*/health_test.yaml") {
		tests := struct {
			Tests []struct {
				InputPath    string              `json:"inputPath"`
				HealthStatus health.HealthStatus `json:"healthStatus"`
			} `json:"tests"`
		}{}
		read(t, file, &tests)
		for _, test := range tests.Tests {
			path := filepath.Join(filepath.Dir(file), test.InputPath)
			t.Run(path, func(t *testing.T) {
				found, err := checks.GetResourceHealth(object(t, path))
				require.NoError(t, err)
				assert.Equal(t, &test.HealthStatus, found)
			})
		}
	}
}

func TestElasticJobActionsByConfigMap(t *testing.T) {
	vm := lua.VM{ResourceOverrides: overrides(t)}
	for _, file := range files(t, "*/*/actions/action_test.yaml") {
		tests := struct {
			DiscoveryTests []struct {
				InputPath string                  `json:"inputPath"`
				Result    []appsv1.ResourceAction `json:"result"`
			} `json:"discoveryTests"`
			ActionTests []struct {
				Action               string            `json:"action"`
				InputPath            string            `json:"inputPath"`
				ExpectedOutputPath   string            `json:"expectedOutputPath"`
				ExpectedErrorMessage string            `json:"expectedErrorMessage"`
				Parameters           map[string]string `json:"parameters"`
			} `json:"actionTests"`
		}{}
		read(t, file, &tests)
		for _, test := range tests.DiscoveryTests {
			path := filepath.Join(filepath.Dir(file), test.InputPath)
			t.Run("discovery"+path, func(t *testing.T) {
				given := object(t, path)
				scripts, err := vm.GetResourceActionDiscovery(given)
				require.NoError(t, err)
				found, err := vm.ExecuteResourceActionDiscovery(given, scripts)
				require.NoError(t, err)
				assert.ElementsMatch(t, test.Result, found)
			})
		}
		for _, test := range tests.ActionTests {
			path := filepath.Join(filepath.Dir(file), test.InputPath)
			t.Run(test.Action+path, func(t *testing.T) {
				given := object(t, path)
				action, err := vm.GetResourceAction(given, test.Action)
				require.NoError(t, err)
				parameters := []*applicationpkg.ResourceActionParameters{}
				for name, value := range test.Parameters {
					parameters = append(parameters, &applicationpkg.ResourceActionParameters{Name: &name, Value: &value})
				}
				found, err := vm.ExecuteResourceAction(given, action.ActionLua, parameters)
				if test.ExpectedErrorMessage != "" {
					require.EqualError(t, err, test.ExpectedErrorMessage)
					return
				}
				require.NoError(t, err)
				require.Len(t, found, 1)
				wanted, err := json.Marshal(object(t, filepath.Join(filepath.Dir(file), test.ExpectedOutputPath)))
				require.NoError(t, err)
				got, err := json.Marshal(found[0].UnstructuredObj)
				require.NoError(t, err)
				assert.JSONEq(t, string(wanted), string(got))
			})
		}
	}
}

// Objects as they were applied, and as the cluster had them after a life: Argo CD finds them in sync.
func TestElasticJobDrift(t *testing.T) {
	pairs := []struct {
		Config map[string]any `json:"config"`
		Live   map[string]any `json:"live"`
	}{}
	read(t, filepath.Join(folder, "..", "..", "tests", "argocd", "lives.yaml"), &pairs)
	require.NotEmpty(t, pairs)
	config, err := argodiff.NewDiffConfigBuilder().
		WithDiffSettings(nil, overrides(t), true, normalizers.IgnoreNormalizerOpts{}).
		WithTracking("", "annotation").WithNoCache().Build()
	require.NoError(t, err)
	for _, pair := range pairs {
		given, live := &unstructured.Unstructured{Object: pair.Config}, &unstructured.Unstructured{Object: pair.Live}
		t.Run(given.GetKind()+"/"+given.GetName(), func(t *testing.T) {
			found, err := argodiff.StateDiff(live, given, config)
			require.NoError(t, err)
			assert.False(t, found.Modified, "normalized %s\npredicted %s", found.NormalizedLive, found.PredictedLive)
		})
	}
}
